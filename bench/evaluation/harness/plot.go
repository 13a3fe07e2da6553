package harness

import (
	"cmp"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// save draws the plot as SVG. Points that a logarithmic axis cannot show are left out.
func (p *Plot) save(file string) error {
	drawn, legend := plot.New(), plot.NewLegend()
	drawn.X.Label.Text, drawn.Y.Label.Text = p.X, p.Y
	legend.Top, legend.Left = true, true
	drawn.Add(plotter.NewGrid())
	points := 0
	for i, s := range p.Series {
		n, err := p.draw(drawn, &legend, s, i)
		if err != nil {
			return fmt.Errorf("harness: plot %s, %s: %w", p.Name, s.Name, err)
		}
		points += n
	}
	if points == 0 {
		return fmt.Errorf("harness: plot %s has no points", p.Name)
	}
	axis(&drawn.X, p.LogX)
	axis(&drawn.Y, p.LogY)
	w, err := beside(drawn, &legend, 8*vg.Inch, 4.5*vg.Inch)
	if err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = w.WriteTo(f)
	return errors.Join(err, f.Close())
}

// beside draws the plot in the given size, and its legend to the right of it, where it covers no line.
func beside(drawn *plot.Plot, legend *plot.Legend, width, height vg.Length) (io.WriterTo, error) {
	const margin = vg.Length(12)
	of := legend.Rectangle(draw.Canvas{}).Size().X + 2*margin
	w, err := draw.NewFormattedCanvas(width+of, height, "svg")
	if err != nil {
		return nil, err
	}
	all := draw.New(w)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	drawn.Draw(draw.Crop(all, 0, -of, 0, 0))
	legend.Draw(draw.Crop(all, width+margin, 0, 0, -margin))
	return w, nil
}

// axis makes an axis logarithmic or, if linear, begin at 0.
func axis(a *plot.Axis, logarithmic bool) {
	if !logarithmic {
		a.Min, a.Max = min(a.Min, 0), max(a.Max, 1e-9)
		return
	}
	a.Scale, a.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	// Whole decades: each has its tick, and a single value has a range.
	a.Min = math.Pow(10, math.Floor(math.Log10(a.Min)))
	a.Max = math.Pow(10, math.Floor(math.Log10(a.Max))+1)
}

// draw adds the medians of a series as a line and the spread as a band, and returns the number of
// points.
func (p *Plot) draw(on *plot.Plot, legend *plot.Legend, s *Series, index int) (int, error) {
	var medians, low, high plotter.XYs
	points := slices.SortedFunc(slices.Values(s.Points), func(a, b *Point) int { return cmp.Compare(a.X, b.X) })
	for _, point := range points {
		y := spreadOf(point.Y)
		if p.LogX && point.X <= 0 || p.LogY && y.lowest <= 0 {
			continue
		}
		medians = append(medians, plotter.XY{X: point.X, Y: y.median})
		low = append(low, plotter.XY{X: point.X, Y: y.lowest})
		high = append(high, plotter.XY{X: point.X, Y: y.highest})
	}
	if len(medians) == 0 {
		return 0, nil
	}
	line, err := plotter.NewLine(medians)
	if err != nil {
		return 0, err
	}
	shade := color.NRGBAModel.Convert(plotutil.Color(index)).(color.NRGBA)
	line.Color, line.Width, line.Dashes = shade, vg.Points(1.5), plotutil.Dashes(index/len(plotutil.DefaultColors))
	shade.A = 40
	slices.Reverse(high)
	if !slices.Equal(low, high) && len(low) > 1 {
		band, err := plotter.NewPolygon(append(low, high...))
		if err != nil {
			return 0, err
		}
		band.Color, band.LineStyle.Width = shade, 0
		on.Add(band)
	}
	on.Add(line)
	if len(medians) <= manyPoints {
		dots, err := plotter.NewScatter(medians)
		if err != nil {
			return 0, err
		}
		dots.Color, dots.Radius = line.Color, vg.Points(2)
		dots.Shape = plotutil.DefaultGlyphShapes[0]
		on.Add(dots)
	}
	legend.Add(s.Name, line)
	return len(medians), nil
}

// manyPoints is the number from which points are not marked.
const manyPoints = 40
