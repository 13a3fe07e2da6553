package shell

import (
	"fmt"
	"strings"

	"github.com/percolator-go/percolator/internal/inspect"
)

// This file formats sizes and lists for people.

// ByteText formats a size in bytes, from 1 KiB on in a larger unit with one decimal.
func ByteText(n int64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n)/1024, 0
	for v >= 1024 && unit < len(units)-1 {
		v, unit = v/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", v, units[unit])
}

// MaxNames is the maximum number of names listed in a message.
const MaxNames = 20

// ColumnNames lists columns for a message.
func ColumnNames(names []string) string {
	var list []string
	for i, name := range names {
		if i == MaxNames {
			list = append(list, fmt.Sprintf("%d more", len(names)-MaxNames))
			break
		}
		list = append(list, inspect.Printable(name))
	}
	return strings.Join(list, ", ")
}

// JoinRows lists the first few rows.
func JoinRows(rows []string) string {
	const most = 6
	text := ""
	for i, row := range rows {
		if i == most {
			return fmt.Sprintf("%s … %d in all", text, len(rows))
		}
		if i > 0 {
			text += " "
		}
		text += inspect.Shortened(row, inspect.ValueWidth/2)
	}
	return text
}
