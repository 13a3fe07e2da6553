//go:build broken_move_unfenced

package broken

// MoveUnfenced: placement changes a tablet's replicas whatever has become of the descriptor that the change was planned
// from (invariant 1 of actors/placement).
const MoveUnfenced = true
