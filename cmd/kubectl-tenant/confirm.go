// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/internal/cli/output"
)

// confirmation describes the question that a command prints before its first write.
type confirmation struct {
	// does is the action of the command, as a sentence. kind describes the name that the caller
	// must type.
	does, kind string
	// name is the name that the caller must type. done is the participle for the error, such as
	// "deleted".
	name, done string
}

// confirm prompts the caller to type the name. It returns an error if the caller types anything
// else.
func confirm(cmd *cobra.Command, c confirmation) error {
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s To continue, type %s: ", output.Safe(c.does), c.kind)
	typed := make(chan string, 1)
	go func() { // the goroutine remains until the process ends if no input arrives
		line, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		typed <- strings.TrimSpace(line)
	}()
	select {
	case <-cmd.Context().Done():
		return cmd.Context().Err()
	case line := <-typed:
		switch line {
		case c.name:
			return nil
		case "":
			return fmt.Errorf("no name was entered: nothing was %s (to skip this question, use --yes)", c.done)
		}
		return fmt.Errorf("the name does not match: nothing was %s (to skip this question, use --yes)", c.done)
	}
}
