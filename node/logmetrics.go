package node

import (
	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// The node's Raft log on the disk, which all of its replicas share. How long its writes
// and syncs take is in mailboxmetrics.go.
//
// The log keeps these figures in memory as it writes; only its free space is a system
// call. Written bytes count from the process's start; the others describe the files as
// they are.
var (
	logSegments  = gaugeFamily("log_segments", "Files of the Raft log.")
	logBytes     = gaugeFamily("log_bytes", "Bytes of the Raft log's files.")
	logLiveBytes = gaugeFamily("log_live_bytes", "Bytes of the entries that are kept in them.")
	logWritten   = counterFamily("log_written_bytes_total", "Bytes written to the Raft log.")
	logUnchecked = gaugeFamily("log_unchecked_bytes",
		"Bytes of the Raft log behind the last checkpoint of the state: "+
			"what a start after a crash applies again.")
	logCheckpointAge = gaugeFamily("log_checkpoint_age_seconds",
		"Age of the last checkpoint of the state; 0: nothing is behind it.")
	logDiskFree = gaugeFamily("log_disk_free_bytes",
		"Free space of the file system that the Raft log is on.")
)

// collectLog exports the log's figures. A log in memory has none.
func (m exporter) collectLog(out chan<- prometheus.Metric, status *pb.NodeStatusResponse) {
	s := status.Log
	if s == nil {
		return
	}
	const second = 1000 // milliseconds
	send(out, logSegments, s.Segments)
	send(out, logBytes, s.Bytes)
	send(out, logLiveBytes, s.LiveBytes)
	send(out, logWritten, s.Written)
	send(out, logUnchecked, s.Unchecked)
	send(out, logDiskFree, s.DiskFree)
	send(out, logCheckpointAge, float64(s.CheckpointAgeMs)/second)
}
