"""Context, links, routers and the distributed worklist: how work-items travel between devices."""
