package main

import (
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
)

// profiles names the profiles' files; empty means no profile. A profile covers all measurements,
// so -only and -callers should select one kind.
type profiles struct{ cpu, allocs, block, mutex string }

// Sampling rates: one blocking event per microsecond blocked, and one contention in ten.
const (
	blockRateNanos = 1000
	mutexFraction  = 10
)

// start starts profiling; the returned function writes the files.
func (p profiles) start() (stop func() error, err error) {
	if p.block != "" {
		runtime.SetBlockProfileRate(blockRateNanos)
	}
	if p.mutex != "" {
		runtime.SetMutexProfileFraction(mutexFraction)
	}
	var cpu *os.File
	if p.cpu != "" {
		if cpu, err = os.Create(p.cpu); err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(cpu); err != nil {
			return nil, errors.Join(err, cpu.Close())
		}
	}
	return func() error {
		var errs []error
		if cpu != nil {
			pprof.StopCPUProfile()
			errs = append(errs, cpu.Close())
		}
		for name, file := range map[string]string{"allocs": p.allocs, "block": p.block,
			"mutex": p.mutex} {
			if file != "" {
				errs = append(errs, writeProfile(name, file))
			}
		}
		return errors.Join(errs...)
	}, nil
}

func writeProfile(name, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup(name).WriteTo(f, 0), f.Close())
}
