//go:build broken_export_early_ack

package broken

// ExportEarlyAck: the web index's exporter acknowledges before the full-text index is durable (examples/webindex/export).
const ExportEarlyAck = true
