"""What other slices use to record actions."""

from clarion.audit.sql import AuditLog as AuditLog
from clarion.audit.sql import Recording as Recording
