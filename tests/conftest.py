"""Settings for all tests: time never decides one."""

from hypothesis import HealthCheck, settings

settings.register_profile("metasilvae", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("metasilvae")
