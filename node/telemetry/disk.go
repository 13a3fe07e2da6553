package telemetry

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/store"
)

// The Raft log on the disk, which all replicas of the node share. Its bytes written count from
// the start of the process; the other figures describe the files.
var logTable = table[*pb.LogStatus]{
	gauge("log_segments", "Files of the Raft log.", (*pb.LogStatus).GetSegments),
	gauge("log_bytes", "Bytes of the Raft log's files.", (*pb.LogStatus).GetBytes),
	gauge("log_live_bytes", "Bytes of the entries kept in the Raft log.", (*pb.LogStatus).GetLiveBytes),
	counter("log_written_bytes_total", "Bytes written to the Raft log.", (*pb.LogStatus).GetWritten),
	gauge("log_replay_bytes",
		"Bytes of the Raft log behind the last checkpoint of the state, which a start after a crash replays.",
		(*pb.LogStatus).GetUnchecked),
	gauge("log_disk_free_bytes", "Free space of the file system of the Raft log.", (*pb.LogStatus).GetDiskFree),
	gauge("log_checkpoint_age_seconds",
		"Age of the last checkpoint of the state; 0 if nothing is behind it.",
		func(s *pb.LogStatus) float64 { return millis(s.CheckpointAgeMs).Seconds() }),
}

// The file system of the node's directory.
var diskTable = table[*pb.NodeStatusResponse]{
	gauge("disk_free_bytes", "Free space of the node's file system.", (*pb.NodeStatusResponse).GetDiskFree),
	gauge("disk_used_bytes", "Space used by the node's directory.", (*pb.NodeStatusResponse).GetDiskUsed),
	gauge("disk_write_blocked",
		"1 while the node refuses writes for lack of disk space or another resource for files.",
		func(s *pb.NodeStatusResponse) float64 { return oneIf(s.WriteBlocked != "") }),
	gauge("disk_damaged", "1 once the node's store was found damaged: it serves nothing any more.",
		func(s *pb.NodeStatusResponse) float64 { return oneIf(s.Damaged != "") }),
}

// The levels of the store. Badger reports compactions and stalls to its log only: the store
// counts those lines (store/logger.go), from the start of the process.
var (
	treeTable = table[store.Trees]{
		counter("store_compactions_total", "Compactions done.",
			func(t store.Trees) uint64 { return t.Compactions }),
		gauge("store_stalled", "1 while writes wait for compactions to make level 0 smaller.",
			func(t store.Trees) float64 { return oneIf(t.Stalled) }),
		counter("store_stalls_total", "Times that writes have waited for compactions over a second.",
			func(t store.Trees) uint64 { return t.Stalls }),
	}
	levelTable = table[store.Level]{
		gauge("store_tables", "Tables of a level of the state.",
			func(l store.Level) uint64 { return l.Tables }, "level"),
		gauge("store_table_bytes", "Bytes of the tables of a level of the state.",
			func(l store.Level) uint64 { return l.Bytes }, "level"),
	}
	freeFiles = gauge("store_files_free",
		"Files that the store can still create, by the resource that limits them; below 512 writes are refused.",
		the[uint64], "resource")
)

// collectDisk exports the figures of the disk and of the store. It locks Badger's levels
// briefly, as compactions do. A store in memory has no disk; zeros would read as a full one.
func (e *Exporter) collectDisk(out chan<- prometheus.Metric, status *pb.NodeStatusResponse) {
	if status.Log != nil {
		logTable.send(out, status.Log)
	}
	if !e.InMemory {
		diskTable.send(out, status)
	}
	trees := e.Store.Trees()
	treeTable.send(out, trees)
	for i, l := range trees.Levels {
		levelTable.send(out, l, strconv.Itoa(i))
	}
	for resource, n := range e.Store.FreeFiles() {
		freeFiles(out, n, string(resource))
	}
}

var certExpiry = gauge("certs_expiry_timestamp_seconds",
	"When a certificate in use expires, in Unix time.", the[int64], "file")

// collectCerts exports the expiry time of each certificate.
func (e *Exporter) collectCerts(out chan<- prometheus.Metric, status *pb.NodeStatusResponse) {
	for _, c := range status.GetCertificates() {
		certExpiry(out, time.UnixMilli(c.ExpiresUnixMs).Unix(), c.File)
	}
}
