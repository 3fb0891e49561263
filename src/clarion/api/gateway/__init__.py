"""The push gateway over HTTP: the APNs door, devices, their topics and their history."""
