"""The two logs of a home, manifests and pins, and lists whose size in a manifest stays small."""
