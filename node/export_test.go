package node

// Metrics are the values that the node exports, by name, added up over their labels.
func (n *Node) Metrics() (map[string]float64, error) {
	families, err := n.gatherer().Gather()
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			out[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out, err
}
