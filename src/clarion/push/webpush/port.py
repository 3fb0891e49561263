"""What `registry.py` uses of the stored endpoints."""

from clarion.push.webpush.sql import ENDPOINTS_LIMIT as ENDPOINTS_LIMIT
from clarion.push.webpush.sql import PushEndpoints as PushEndpoints
