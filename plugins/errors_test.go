// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/plugins"
)

// TestErrorsAreReturnedTogether checks that all errors are returned as one error. If there are
// too many, the error contains the first errors and the number of the remaining errors.
func TestErrorsAreReturnedTogether(t *testing.T) {
	var none plugins.Errors
	none.Add(nil)
	if err := none.Err(); err != nil {
		t.Errorf("%v", err)
	}
	first := errors.New("first")
	var some plugins.Errors
	some.Add(first)
	some.Add(errors.New("second"))
	if err := some.Err(); !errors.Is(err, first) || err.Error() != "[first, second]" {
		t.Errorf("%v", err)
	}
	var many plugins.Errors
	for i := range 1000 {
		many.Add(fmt.Errorf("field %d", i))
	}
	if text := many.Err().Error(); !strings.HasSuffix(text, "field 15, and 984 more]") {
		t.Error(text)
	}
}
