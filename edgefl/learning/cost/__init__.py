"""What a local step executes, touches and stores, measured on the method's real graph."""
