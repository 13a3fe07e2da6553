// Package s3 lets package backup open buckets of Amazon S3, and of other servers that speak
// its protocol, by URLs such as s3://NAME?region=eu-central-1. Import it for that effect, in
// the main package of a program whose nodes or commands make backups there:
//
//	import _ "github.com/percolator-go/percolator/backup/s3"
//
// The percolator binary does. It is a separate package because it links the AWS SDK, some 100
// packages.
package s3

import _ "gocloud.dev/blob/s3blob" // registers the scheme s3
