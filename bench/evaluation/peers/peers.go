// Package peers measures Percolator beside what a user would pick instead, in turns, with every
// commit durable: document clustering beside workers over a queue in PostgreSQL; queues of jobs beside
// River and PgQ (both in PostgreSQL) and NATS JetStream; a transaction beside etcd's, in one process
// and in three; checks of permissions beside OpenFGA and recursive queries in PostgreSQL; the feed of
// changes beside etcd's watch and PostgreSQL's logical replication. Every measurement checks its
// result.
//
// PostgreSQL runs as servers of the package's own: Debian packages postgresql-15 and
// postgresql-15-pgq3. What is not installed is skipped with a printed line. Servers run as the user
// postgres if this process runs as root.
package peers

import (
	"time"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/bench/evaluation/peers/cluster"
)

// Measurements returns the measurements of this package.
func Measurements() []harness.Measurement {
	return []harness.Measurement{
		{Name: "clustering", Title: "Document clustering beside PostgreSQL", Budget: 90 * time.Second, Run: runDocuments},
		{Name: "queues", Title: "Queues: River, PgQ, JetStream", Budget: 260 * time.Second, Run: runQueues},
		{Name: "etcd", Title: "One node beside an embedded etcd", Budget: 30 * time.Second, Run: runEtcd},
		{Name: "etcd3", Title: "Three processes beside three of etcd", Budget: 150 * time.Second, Run: cluster.Run},
		{Name: "permissions", Title: "Permissions beside OpenFGA and PostgreSQL", Budget: 40 * time.Second, Run: runClosure},
		{Name: "changes", Title: "Feed of changes beside etcd's watch and logical replication", Budget: 80 * time.Second, Run: runChanges},
	}
}

// ours is the row of this system.
const ours = "percolator"

// payload is the value of a cell, a job or a key.
var payload = []byte("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123")
