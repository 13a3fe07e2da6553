package cli

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// envPrefix begins the name of every setting in the environment.
const envPrefix = "PERCOLATOR_"

// fill sets the command's flags that the command line left out, from the environment and
// the file (invariant 2). One file and one environment serve all commands: a setting of
// another command is known, and passed over.
func (r *run) fill(cmd *cobra.Command) error {
	known := map[string]bool{}
	collectFlags(cmd.Root(), known)
	settings := koanf.New(".")
	env := r.environment()
	if r.config == "" {
		r.config = env["config"]
	}
	if r.config != "" {
		if err := loadFile(settings, r.config, known); err != nil {
			return err
		}
	}
	delete(env, "config")
	if err := loadEnvironment(settings, env, known); err != nil {
		return err
	}
	var fault error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if fault != nil || f.Changed || !settings.Exists(f.Name) {
			return
		}
		if err := cmd.Flags().Set(f.Name, settings.String(f.Name)); err != nil {
			fault = fmt.Errorf("setting %q from the environment or the configuration file: %w", f.Name, err)
		}
	})
	return fault
}

// collectFlags gathers the names of all flags of the command and those below it.
func collectFlags(cmd *cobra.Command, known map[string]bool) {
	add := func(f *pflag.Flag) { known[f.Name] = true }
	cmd.LocalFlags().VisitAll(add)
	for _, sub := range cmd.Commands() {
		collectFlags(sub, known)
	}
	delete(known, "help")
	delete(known, "version")
	delete(known, "config")
	delete(known, "yes") // what can't be undone is meant on the command line, or not at all (invariant 7)
}

// environment returns the settings of the environment by flag name.
func (r *run) environment() map[string]string {
	env := map[string]string{}
	for _, entry := range r.Environ {
		name, value, _ := strings.Cut(entry, "=")
		if key, ours := strings.CutPrefix(name, envPrefix); ours {
			env[strings.ReplaceAll(strings.ToLower(key), "_", "-")] = value
		}
	}
	return env
}

// loadFile adds the file's settings. Nested keys are joined: batch: {tablet: {linger:
// 1ms}} is batch-tablet-linger.
func loadFile(into *koanf.Koanf, name string, known map[string]bool) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	parsed, err := yaml.Parser().Unmarshal(text)
	if err != nil {
		return fmt.Errorf("configuration file %s: %w", name, err)
	}
	flat := map[string]string{}
	flatten("", parsed, flat)
	for _, key := range slices.Sorted(maps.Keys(flat)) {
		if !known[key] {
			return fmt.Errorf("configuration file %s: unknown key %q%s", name, key, suggestion(key, known))
		}
		if err := into.Set(key, flat[key]); err != nil {
			return err
		}
	}
	return nil
}

// loadEnvironment adds the environment's settings, over the file's.
func loadEnvironment(into *koanf.Koanf, env map[string]string, known map[string]bool) error {
	for _, key := range slices.Sorted(maps.Keys(env)) {
		if !known[key] {
			return fmt.Errorf("environment: unknown setting %s%s", envName(key), suggestion(key, known))
		}
		if err := into.Set(key, env[key]); err != nil {
			return err
		}
	}
	return nil
}

// flatten joins nested keys by dashes and writes values as a command line would. Below
// "labels" keys are data.
func flatten(prefix string, from map[string]any, into map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(from)) {
		name := key
		if prefix != "" {
			name = prefix + "-" + key
		}
		switch v := from[key].(type) {
		case map[string]any:
			if name == labelsFlag {
				into[name] = pairs(v)
				continue
			}
			flatten(name, v, into)
		case []any:
			items := make([]string, len(v))
			for i, item := range v {
				items[i] = fmt.Sprint(item)
			}
			into[name] = strings.Join(items, ",")
		case nil:
			into[name] = ""
		default:
			into[name] = fmt.Sprint(v)
		}
	}
}

// pairs writes a map as k=v,k=v.
func pairs(m map[string]any) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, fmt.Sprintf("%s=%v", key, m[key]))
	}
	return strings.Join(list, ",")
}

// envName is how a flag is called in the environment.
func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
}

// suggestion names a known setting that differs little, or nothing.
func suggestion(key string, known map[string]bool) string {
	best, least := "", 3
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if d := distance(key, name); d < least {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// distance is Levenshtein's, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
