package cli

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/percolator-go/percolator/internal/cli/nodecmd"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/policy"
)

// Settings from the environment and the configuration file.

// envPrefix is the prefix of every setting in the environment.
const envPrefix = "PERCOLATOR_"

// fill sets the command's flags that the command line omits, from the environment and the file. All
// commands share one file and one environment, so settings of other commands are ignored.
func (c *commandLine) fill(cmd *cobra.Command) error {
	known := map[string]bool{}
	collectFlags(cmd.Root(), known)
	settings, env := map[string]string{}, environment(c.App.Environ)
	c.config = cmp.Or(c.config, env["config"])
	if c.config != "" {
		if err := loadFile(settings, c.config, known); err != nil {
			return err
		}
	}
	delete(env, "config")
	for _, key := range slices.Sorted(maps.Keys(env)) {
		if !known[key] && !serviceLink(key, env[key]) {
			return fmt.Errorf("environment: unknown setting %s%s", envName(key),
				shell.Suggestion(key, known))
		}
	}
	maps.Copy(settings, env) // the environment overrides the file
	var fault error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value, given := settings[f.Name]
		if fault != nil || f.Changed || !given {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			if f.Value.Type() == "bool" {
				err = fmt.Errorf("%q is neither true nor false", value)
			}
			fault = coded.Errorf("", "setting %q from the environment or the configuration file: %w",
				f.Name, err)
			return
		}
		origin := c.config
		if _, set := env[f.Name]; set {
			origin = envName(f.Name)
		}
		fault = cmd.Flags().SetAnnotation(f.Name, shell.OriginKey, []string{origin})
	})
	return fault
}

// collectFlags adds the names of all flags of the command and its subcommands.
func collectFlags(cmd *cobra.Command, known map[string]bool) {
	add := func(f *pflag.Flag) { known[f.Name] = true }
	cmd.LocalFlags().VisitAll(add)
	for _, sub := range cmd.Commands() {
		collectFlags(sub, known)
	}
	delete(known, "help")
	delete(known, "version")
	delete(known, "config")
	// Confirmation comes from the command line only.
	delete(known, "yes")
}

// environment returns the settings in an environment by flag name. It ignores empty variables.
func environment(environ []string) map[string]string {
	env := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if key, ours := strings.CutPrefix(name, envPrefix); ours && value != "" {
			env[strings.ReplaceAll(strings.ToLower(key), "_", "-")] = value
		}
	}
	renameFormer(env)
	return env
}

// renameFormer replaces former names of settings by the current ones. If both are set, the value
// under the current name counts.
func renameFormer(settings map[string]string) {
	for _, key := range slices.Collect(maps.Keys(settings)) {
		current := policy.CurrentName(key)
		if current == key {
			continue
		}
		if _, both := settings[current]; !both {
			settings[current] = settings[key]
		}
		delete(settings, key)
	}
}

var serviceLinkName = regexp.MustCompile(
	`(^|-)(service-host|service-port(-.+)?|port-[0-9]+-(tcp|udp|sctp)(-(proto|port|addr))?)$`)

// serviceLink reports whether Kubernetes has set the variable: it sets some for each service of
// a pod's namespace, and those of a service named percolator begin as our settings do
// (PERCOLATOR_SERVICE_HOST, PERCOLATOR_PORT=tcp://…).
func serviceLink(key, value string) bool {
	port := key == "port" || strings.HasSuffix(key, "-port")
	return serviceLinkName.MatchString(key) || port && strings.Contains(value, "://")
}

// loadFile adds the file's settings. Nested keys are joined: batch: {tablet: {linger:
// 1ms}} is batch-tablet-linger.
func loadFile(into map[string]string, name string, known map[string]bool) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return coded.Errorf("", "configuration file: %w", err)
	}
	parsed, err := yaml.Parser().Unmarshal(text)
	if err != nil {
		return coded.Errorf("", "configuration file %s: %w", name, err)
	}
	flatten("", parsed, into)
	renameFormer(into)
	for _, key := range slices.Sorted(maps.Keys(into)) {
		if !known[key] {
			return fmt.Errorf("configuration file %s: unknown key %q%s", name, key,
				shell.Suggestion(key, known))
		}
	}
	return nil
}

// flatten joins nested keys by dashes and formats values as on a command line. Keys below "labels" are
// data.
func flatten(prefix string, from map[string]any, into map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(from)) {
		name := key
		if prefix != "" {
			name = prefix + "-" + key
		}
		switch v := from[key].(type) {
		case map[string]any:
			if name == nodecmd.LabelsFlag {
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

// pairs formats a map as k=v,k=v.
func pairs(m map[string]any) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, fmt.Sprintf("%s=%v", key, m[key]))
	}
	return strings.Join(list, ",")
}

// envName returns the name of a flag's environment variable.
func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
}
