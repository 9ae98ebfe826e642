// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"fmt"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// maxErrors is the maximum number of errors in one response.
const maxErrors = 16

// Errors collects the errors of an object, so that one response contains all of them. The zero
// value has no errors.
type Errors struct {
	all  []error
	more int
}

// Add adds an error. It ignores nil. After maxErrors errors, it only increases the number of errors.
func (r *Errors) Add(err error) {
	if err == nil {
		return
	}
	if len(r.all) >= maxErrors {
		r.more++
		return
	}
	r.all = append(r.all, err)
}

// Err returns all errors as one error, or nil if there are none.
func (r *Errors) Err() error {
	all := r.all
	if r.more > 0 {
		all = append(all[:len(all):len(all)], fmt.Errorf("and %d more", r.more))
	}
	if aggregate := utilerrors.NewAggregate(all); aggregate != nil {
		return aggregate
	}
	return nil
}
