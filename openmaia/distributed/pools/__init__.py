"""Pools. A pool consists of the replicas of one model and a dispatcher that distributes requests to them."""
