"""What other slices use of users (their data, preferences and followed topics) and of segments."""

from clarion.people.segments.sql.segments import Segments as Segments
from clarion.people.sql import Users as Users
