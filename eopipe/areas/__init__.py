"""Areas of a map's classes and its accuracy, estimated from a probability sample that people have labelled."""
