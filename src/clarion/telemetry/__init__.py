"""What happens → logs and metrics. Observes the steps from outside."""
