"""The two ways of `mount`: a new cluster, and a broker that is there."""
