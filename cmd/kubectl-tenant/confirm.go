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

// confirmation is the question that a command asks before it writes.
type confirmation struct {
	// does says what the command will do. kind says which name the caller must type.
	does, kind string
	// name is that name. done is the participle for the error message, such as "deleted".
	name, done string
}

// confirm returns an error unless the caller types the name.
func confirm(cmd *cobra.Command, c confirmation) error {
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s To continue, type %s: ", output.Safe(c.does), c.kind)
	typed := make(chan string, 1)
	go func() { // it ends with the process if nothing is typed
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
