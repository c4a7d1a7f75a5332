"""Data between the host and GPUs: copies in both directions, the staging pool, and results in order.

``copies`` copies arrays, and returns when all has arrived. ``delivery`` makes one array of values of
vertices that lie on several GPUs. Both copy from and to ordinary host memory by the threads of ``staging``.
"""
