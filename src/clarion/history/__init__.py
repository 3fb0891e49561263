"""What happened: notifications, their deliveries, and the attempts to deliver them."""
