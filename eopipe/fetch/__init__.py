"""Assets of scenes, fetched whole or in part, resumed and verified."""
