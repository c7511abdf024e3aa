"""The two logs of a home, manifests, and lists whose size in a manifest stays small."""
