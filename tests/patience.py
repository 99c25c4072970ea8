"""How long tests wait for what must come."""

# Seconds: a bound for a hang, not for speed, since other programs may keep the cores busy.
PATIENCE = 600
