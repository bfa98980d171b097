"""Job objects of Kubernetes: submitted, followed and deleted through its API."""
