// Package harness runs the measurements of the evaluation. A measurement records every repetition
// of its values in a Run; Execute prints their medians as tables, writes them as JSON and as plots,
// and puts tables and plots into docs/evaluation.md. OpenLoop generates load without coordinated
// omission; CPUOf and DeviceBytes count what an operation uses.
package harness
