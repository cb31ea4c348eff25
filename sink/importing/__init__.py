"""Takes over logs of a broker: what lies in its folders, what a store gets of it, and the commits."""
