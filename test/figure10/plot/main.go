// Command plot draws the figure that figure10 has measured: transactions per second over
// time, with the moment of the kill, as SVG and PNG beside the CSV. It is a module of its
// own so that the product does not depend on a plotter.
//
//	go run . ../../../docs/figure10.csv
package main

import (
	"bufio"
	"fmt"
	"image/color"
	"os"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: plot FILE.csv")
		os.Exit(2)
	}
	if err := draw(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

// measured is what the CSV holds.
type measured struct {
	title  string
	killed float64 // seconds after the load began
	points plotter.XYs
	most   float64
}

// load reads the CSV: comments with what was measured, a header, a line a second.
func load(name string) (m measured, err error) {
	f, err := os.Open(name)
	if err != nil {
		return m, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if text, ok := strings.CutPrefix(line, "# killed_at="); ok {
			if m.killed, err = strconv.ParseFloat(text, 64); err != nil {
				return m, err
			}
			continue
		}
		if text, ok := strings.CutPrefix(line, "# make figure10: "); ok {
			m.title = text
			continue
		}
		second, count, ok := strings.Cut(line, ",")
		if !ok || second == "second" {
			continue
		}
		x, err := strconv.ParseFloat(second, 64)
		if err != nil {
			return m, err
		}
		y, err := strconv.ParseFloat(count, 64)
		if err != nil {
			return m, err
		}
		m.points = append(m.points, plotter.XY{X: x + 0.5, Y: y})
		m.most = max(m.most, y)
	}
	if len(m.points) == 0 {
		return m, fmt.Errorf("%s holds no seconds", name)
	}
	return m, nil
}

func draw(name string) error {
	m, err := load(name)
	if err != nil {
		return err
	}
	p := plot.New()
	p.Title.Text = "A third of the nodes killed at once\n" + strings.ReplaceAll(m.title, "; ", "\n")
	p.X.Label.Text, p.Y.Label.Text = "seconds", "transactions per second"
	p.Y.Min, p.Y.Max = 0, m.most*1.1
	line, err := plotter.NewLine(m.points)
	if err != nil {
		return err
	}
	line.Width, line.Color = vg.Points(1.5), color.RGBA{R: 30, G: 90, B: 170, A: 255}
	kill, err := plotter.NewLine(plotter.XYs{{X: m.killed, Y: 0}, {X: m.killed, Y: m.most * 1.1}})
	if err != nil {
		return err
	}
	kill.Color, kill.Dashes = color.RGBA{R: 190, G: 40, B: 40, A: 255},
		[]vg.Length{vg.Points(4), vg.Points(3)}
	p.Add(plotter.NewGrid(), line, kill)
	p.Legend.Add("committed", line)
	p.Legend.Add("one zone of three killed", kill)
	p.Legend.Top = true
	base := strings.TrimSuffix(name, ".csv")
	for _, kind := range []string{".svg", ".png"} {
		if err := p.Save(8*vg.Inch, 4*vg.Inch, base+kind); err != nil {
			return err
		}
	}
	return nil
}
