"""Between network and endpoints: connections, access control, logins, static files."""
