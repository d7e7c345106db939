"""What stands between the network and the answers."""
