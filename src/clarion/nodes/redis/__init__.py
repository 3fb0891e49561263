"""Redis or Valkey, one server or a Cluster: limits, the bus, and who holds which device.

Nothing there is durable. The client is our own, on hiredis: all commands of a turn of the event
loop go out in one write, which costs a seventh of the processor time of redis-py's pipelines.
"""
