"""Contexts, links, routers and collectives: how arrays and work-items travel between endpoints."""
