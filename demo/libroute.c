#include "libroute.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TILES = 6, TILE_BYTES = 4096, RECENT = 64 };

struct tile {
    struct tile *next;
    unsigned char pixels[TILE_BYTES];
};

struct route_stream {
    int vehicle;
    struct tile *tiles;
};

/* The last positions of all vehicles: a cache that fills up and then stays as it is. */
static char *recent[RECENT];
static unsigned n_recent;

static struct tile *tile_decode(int vehicle, int number) {
    struct tile *tile = malloc(sizeof *tile);
    if (!tile) abort();
    memset(tile->pixels, vehicle + number, sizeof tile->pixels);
    return tile;
}

static struct tile *tiles_around(int vehicle) {
    struct tile *tiles = NULL;
    for (int number = 0; number < TILES; number++) {
        struct tile *tile = tile_decode(vehicle, number);
        tile->next = tiles;
        tiles = tile;
    }
    return tiles;
}

static void tiles_free(struct tile *tiles) {
    while (tiles) {
        struct tile *next = tiles->next;
        free(tiles);
        tiles = next;
    }
}

static void recent_remember(const char *status) {
    char **place = &recent[n_recent++ % RECENT];
    free(*place);
    *place = strdup(status);
}

struct route_stream *route_stream_open(int vehicle) {
    struct route_stream *stream = malloc(sizeof *stream);
    if (!stream) abort();
    stream->vehicle = vehicle;
    stream->tiles = tiles_around(vehicle);
    return stream;
}

char *route_stream_status(struct route_stream *stream, int step) {
    char *status = malloc(128);
    if (!status) abort();
    snprintf(status, 128, "vehicle %d at kilometre %d", stream->vehicle, step);
    recent_remember(status);
    return status;
}

void route_stream_close(struct route_stream *stream) {
    tiles_free(stream->tiles);
    free(stream);
}

void route_stream_abandon(struct route_stream *stream) {
    /* The leak: nobody is left to show the tiles to, and nobody frees them. */
    free(stream);
}
