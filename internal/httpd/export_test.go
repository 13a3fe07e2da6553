package httpd

// MaxConnections is for tests.
const MaxConnections = maxConnections
