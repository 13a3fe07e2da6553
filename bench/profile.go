package main

import (
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
)

// profiles are the files that profiles go to; empty: none. They are of all that is
// measured, so -only and -callers should leave one kind.
type profiles struct{ cpu, allocs, block, mutex string }

// Rates of the profiles that sample: a blocking event a microsecond, and one contention of ten.
const (
	blockRateNanos = 1000
	mutexFraction  = 10
)

// start begins to profile; the function it returns writes the files.
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
