package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	fs := flag.NewFlagSet("image", flag.ContinueOnError)
	bins := fs.String("bin", "bin", "directories of the built programs, comma-separated, one for each architecture")
	programs := fs.String("programs", "contivk8s,netctl,netmaster,netplugin", "what the image holds of them")
	user := fs.Int("user", 0, "number of the user that runs the programs, and owns /"+stateDir)
	revision := fs.String("revision", "", "commit that the programs were built from")
	out := fs.String("o", "", "archive to write")
	name := fs.String("name", "", "the image's name, with registry and tag, such as docker.io/contiv/contiv:2.0")
	created := fs.String("time", "1970-01-01T00:00:00Z", "what the image says when it was made, RFC 3339")
	if err := fs.Parse(args); err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, *created)
	repo, tag, tagged := strings.Cut((*name)[strings.LastIndex(*name, "/")+1:], ":")
	switch {
	case err != nil:
		return fmt.Errorf("-time %q: %w", *created, err)
	case *out == "":
		return errors.New("-o must name the archive to write")
	case !tagged || repo == "" || tag == "" || !strings.Contains(*name, "/"):
		return fmt.Errorf("-name %q: must be registry/repository:tag, such as docker.io/contiv/contiv:2.0", *name)
	}
	image, err := build(spec{
		bins: strings.Split(*bins, ","), programs: strings.Split(*programs, ","),
		name: *name, user: *user, revision: *revision, created: at.UTC(),
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(*out+".new", image.archive, 0o644); err != nil {
		return err
	}
	if err := os.Rename(*out+".new", *out); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s %s: %s, %d MB\n", *out, *name, image.digest, len(image.archive)>>20)
	return err
}
