"""The dashboard at `/admin`: pages rendered on the server, with the operations of the API."""
