/* A native library such as a service links without knowing its inside: routes of vehicles
   and the map tiles that are shown under them. */
#ifndef LIBROUTE_H
#define LIBROUTE_H

struct route_stream;

/* Opens a vehicle's stream and loads the map tiles around it. */
struct route_stream *route_stream_open(int vehicle);

/* The vehicle's status as text; the caller frees it. */
char *route_stream_status(struct route_stream *stream, int step);

/* The viewer said goodbye. */
void route_stream_close(struct route_stream *stream);

/* The viewer's connection is gone. */
void route_stream_abandon(struct route_stream *stream);

#endif
