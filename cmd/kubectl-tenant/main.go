// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-tenant is the plugin for "kubectl tenant".
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubetenant/kubetenant/internal/cli/kubeconfig"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/internal/cli/uninstall"
)

// Exit codes: 0 if the command succeeded, 1 if a check failed or a request was rejected, 2 if the
// command could not run.
const (
	exitFailed  = 1
	exitUnusual = 2
	// exitInterrupted is the exit code that shells use for an interrupt.
	exitInterrupted = 130
)

var (
	// errFailed ends a command that has already printed its findings.
	errFailed = errors.New("failed")
	// errSome reports that the command failed for some of several clusters.
	errSome = errors.New("run the command again when the failed clusters are available")
	// errUndone reports that an interrupted command deleted everything that it created.
	errUndone = errors.New("interrupted: everything that the run created was deleted")
)

// gcPercent lets the heap grow to five times the live data before a garbage collection. Commands
// are short and retain little of the data that they read (docs/design/benchmarks.md). They may run
// on a machine of the control plane, where the server needs the processors.
const gcPercent = 400

func main() {
	debug.SetGCPercent(gcPercent)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process
	err := newCommand().ExecuteContext(ctx)
	interrupted := ctx.Err() != nil
	stop()
	if err == nil {
		return
	}
	switch {
	case interrupted && errors.Is(err, errUndone):
		fmt.Fprintln(os.Stderr, "kubectl tenant:", err)
		os.Exit(exitInterrupted)
	case interrupted:
		fmt.Fprintln(os.Stderr, "kubectl tenant: interrupted: completed changes remain")
		os.Exit(exitInterrupted)
	case errors.Is(err, errFailed):
		os.Exit(exitFailed)
	default:
		fmt.Fprintln(os.Stderr, "kubectl tenant:", printed(err))
		os.Exit(exitCode(err))
	}
}

// printed returns the text of an error for a terminal. If cobra suggests commands, they are on
// separate lines, as in kubectl. Otherwise, the text is one line.
func printed(err error) string {
	message, suggestions, ok := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
	if !ok {
		return oneLine(err)
	}
	text := output.Safe(message) + "\n\nDid you mean this?"
	for _, name := range strings.Fields(suggestions) {
		text += "\n\t" + output.Safe(name)
	}
	return text
}

// oneLine returns the text of an error on one line, without control characters.
func oneLine(err error) string {
	var parts []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			parts = append(parts, output.Safe(line))
		}
	}
	return strings.Join(parts, "; ")
}

// exitCode returns the exit code for an error. It is 1 if the server or a rule denied the command,
// if a specified object does not exist, or if the command failed for some of several clusters. It
// is 2 if the command could not run.
func exitCode(err error) int {
	for _, found := range []error{
		errSome, tenancy.ErrRefused, tenancy.ErrNotEmpty, tenancy.ErrNoTenant, tenancy.ErrMissing,
		tenancy.ErrNamespaceNotEmpty, kubeconfig.ErrDenied, uninstall.ErrRefused, uninstall.ErrFailed,
	} {
		if errors.Is(err, found) {
			return exitFailed
		}
	}
	if apierrors.IsForbidden(err) || isMissingObject(err) {
		return exitFailed
	}
	return exitUnusual
}

// isMissingObject reports whether an error means that an object does not exist. It returns false if
// the server does not have the object's kind.
func isMissingObject(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name != ""
}
