"""How property tests run: no deadline, because a busy machine is not a bug."""

from hypothesis import HealthCheck, settings

settings.register_profile("sparklog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sparklog")
