//go:build broken_checkpoint_unsynced

package broken

// CheckpointUnsynced: a checkpoint is recorded before the state is durable (acknowledged means durable).
const CheckpointUnsynced = true
