"""Assets of scenes, brought here whole or in part."""
